"""What tests are made of: disks that fail by a plan, and later a simulated cluster."""
