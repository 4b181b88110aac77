"""What layer_norm and rms_norm share: kernels with and without a mean."""
