"""Prints a line for each failure when it happens: a run that is ended has no summary."""

import pytest


class FailuresAtOnce:
    def __init__(self, reporter):
        self._reporter = reporter

    def pytest_runtest_logreport(self, report):
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self._reporter.ensure_newline()
            self._reporter.write_line(" - ".join([f"FAILED {report.nodeid}",
                                                  *(crash.message.splitlines()[:1] if crash else [])]))


@pytest.hookimpl(trylast=True)  # after the reporter
def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailuresAtOnce(config.pluginmanager.get_plugin("terminalreporter")))
