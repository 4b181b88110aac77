"""Whether kernels do what they should: cases, the acceptance rule, contracts."""
