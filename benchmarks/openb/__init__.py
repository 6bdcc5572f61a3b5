"""The benchmark of FGD (Weng et al., USENIX ATC 2023) on Alibaba's cluster of shared GPUs, openb."""
