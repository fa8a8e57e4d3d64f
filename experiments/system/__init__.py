"""Files, processes, devices and secrets of the machine that a run is on. Knows nothing of experiments."""
