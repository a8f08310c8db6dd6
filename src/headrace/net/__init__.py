"""Connections: frames in, buffers out, with a limit on everything. What frames mean is not its business."""
