"""What tests are made of: disks that fail by a plan, and a simulator that runs whole processes from one seed."""
