"""Jobs: related runs, each in its own process. A sweep has one per combination of values, a study per arm and seed."""
