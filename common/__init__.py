"""What every package needs: errors, units, devices, storage URLs, terminal output."""
