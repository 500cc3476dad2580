"""The simulator: ottla's machines on a virtual clock and a network that fails; a seed reproduces every run."""
