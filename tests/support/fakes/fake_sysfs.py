"""A fake sysfs: files, hwmon chips, PCIe links and powercap zones under a temporary directory."""

NVME = {"temp1_input": 38850, "temp1_label": "Composite", "temp2_input": 41850, "temp2_label": "Sensor 1",
        "temp3_input": -1150, "temp3_label": "Sensor 2"}
PCI = "devices/pci0000:00/0000:00:1d.0/0000:03:00.0"


class Sys:
    """A directory tree with files by name, and hwmon chips linked as in sysfs."""

    def __init__(self, root):
        self.root = root
        self.chips = 0

    def put(self, **files):
        for name, text in files.items():
            self.file(name, text)

    def file(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
        return path

    def chip(self, name, device=None, **files):
        """Creates a hwmon chip and its device; returns the directory of the chip."""
        number, self.chips = self.chips, self.chips + 1
        parent = self.root / (device or f"devices/platform/{name}")
        chip = parent / f"hwmon/hwmon{number}"
        chip.mkdir(parents=True)
        (chip / "device").symlink_to(parent)
        for file, text in {"name": name, **files}.items():
            (chip / file).write_text(f"{text}\n")
        entry = self.root / f"class/hwmon/hwmon{number}"
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.symlink_to(chip)
        return chip

    def disk(self, path):
        (self.root / path).mkdir(parents=True, exist_ok=True)
        return self.root / path

    def link(self, speed="8.0 GT/s PCIe", width=4, best="16.0 GT/s PCIe"):
        for device, now in ((PCI, speed), ("devices/pci0000:00/0000:00:1d.0", best)):
            self.file(f"{device}/current_link_speed", now)
            self.file(f"{device}/max_link_speed", best)
            for kind in ("current", "max"):
                self.file(f"{device}/{kind}_link_width", width)


def rapl(sys_tree, zone="intel-rapl:0", name="package-0", energy=0, most=262143328850):
    """Creates a powercap zone; returns its directory."""
    for file, text in (("name", name), ("energy_uj", energy), ("max_energy_range_uj", most)):
        sys_tree.file(f"class/powercap/{zone}/{file}", text)
    return sys_tree.root / f"class/powercap/{zone}"
