"""Kernels that layer_norm and rms_norm share: rows of the second have no mean."""
