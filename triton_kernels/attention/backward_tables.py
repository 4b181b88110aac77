"""The tiles of the rungs of attention's backward, and the calls that they are for."""

from triton_kernels.attention.tables import AttentionTile

# Head_dim, queries, keys, stages, warps, columns. Where elements come one by one, a
# thread holds the address of each, and has registers for smaller tiles only; where two
# gradients are summed up, too.
KEYS_TILED_TILES = (
    AttentionTile(64, 32, 64, 2, 8, 16, needs_vectors=True, arch=90),
    AttentionTile(128, 16, 64, 2, 8, 16, needs_vectors=True, arch=90),
    AttentionTile(64, 16, 64, 2, 8, 16, needs_vectors=True),
    AttentionTile(128, 16, 32, 2, 8, 16),
    AttentionTile(256, 16, 16, 2, 8, 16),
)
QUERIES_TILED_TILES = (
    AttentionTile(128, 64, 64, 2, 8, 16, needs_vectors=True, arch=90),
    AttentionTile(256, 64, 32, 2, 8, 16, needs_vectors=True, arch=90),
    AttentionTile(64, 64, 32, 2, 4, 16, needs_vectors=True),
    AttentionTile(128, 64, 32, 2, 8, 16, needs_vectors=True),
    AttentionTile(256, 64, 16, 2, 8, 16, needs_vectors=True),
    AttentionTile(64, 64, 32, 2, 8, 16),
    AttentionTile(128, 32, 32, 2, 8, 16),
    AttentionTile(256, 16, 32, 2, 8, 16),
)
# The default ones fit into the 99 KB of shared memory that the smallest GPUs have.
KEYS_TENSOR_CORES_TILES = (
    AttentionTile(64, 64, 128, 2, 8, needs_vectors=True, needs_plain=True, arch=90),
    AttentionTile(128, 32, 128, 2, 8, needs_vectors=True, arch=90),
    AttentionTile(64, 32, 128, 2, 8, needs_vectors=True),
    AttentionTile(128, 64, 64, 2, 8, needs_vectors=True),
    AttentionTile(256, 32, 32, 2, 8, needs_vectors=True),
    AttentionTile(128, 32, 32, 2, 8),
    AttentionTile(256, 16, 32, 2, 8),
)
QUERIES_TENSOR_CORES_TILES = (
    AttentionTile(128, 128, 64, 2, 8, needs_vectors=True, arch=90),
    AttentionTile(256, 128, 32, 2, 8, needs_vectors=True, arch=90),
    AttentionTile(64, 128, 32, 2, 8, needs_vectors=True),
    AttentionTile(128, 64, 64, 2, 8, needs_vectors=True),
    AttentionTile(256, 64, 16, 2, 8, needs_vectors=True),
    AttentionTile(256, 32, 32, 2, 8),
)
