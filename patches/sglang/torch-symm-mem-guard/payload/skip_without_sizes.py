# sglforge: the table of sizes ends in a KeyError for capabilities that it does not hold, such as 12.
if self.device_capability not in TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES:
    logger.warning(
        "sglforge: torch symmetric memory has no all-reduce sizes for this GPU (major capability %s); it stays off.",
        self.device_capability,
    )
    return
