"""GPU resources, device classes and ResourceSlices."""
