"""Quality: models quantized, compared, scored and searched for the mix of precisions that is worth it."""
