"""Output of nvidia-smi topo -m and rocm-smi --showtopo."""
