"""A deterministic simulator: whole processes on simulated hosts, network, disks and time, all from one seed.

`Simulation` is the world; `run` runs a scenario in it for one seed; `history` judges what clients saw.
"""
