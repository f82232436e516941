"""Frame times of an application on the clock of a trace: which frames waited for which I/O."""
