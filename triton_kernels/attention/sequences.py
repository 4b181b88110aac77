"""Where the sequence of a program's queries and keys lies.

Tensors have a sequence of the same length for each batch, or they are packed, and
sequences of any lengths follow each other.
"""

import triton
import triton.language as tl

from triton_kernels.attention.tiles import owned_keys, queries_of_program


def count_tiles(n_batches, n_rows, n_sequences, offsets, block):
    """How many tiles of `block` rows the sequences of a head have."""
    if offsets is None:
        return n_batches * triton.cdiv(n_rows, block)
    return n_rows // block + n_sequences + 2  # as packed_tile counts them


@triton.jit
def row_at(offsets_ptr, i, n_sequences, n_rows):
    """Where the i-th packed sequence begins, and the one before it ends.

    The first and the last number are those of no sequence: of the rows before the first
    offset, and behind the last. Wrong offsets are clamped, and lead nowhere outside of
    a tensor.
    """
    has_offset = (i > 0) & (i <= n_sequences + 1)
    offset = tl.load(offsets_ptr + i - 1, mask=has_offset, other=0).to(tl.int64)
    offset = tl.minimum(tl.maximum(offset, 0), n_rows)
    return tl.where(i > n_sequences + 1, n_rows, offset)


@triton.jit
def first_tile(offsets_ptr, i, n_sequences, n_rows, BLOCK: tl.constexpr):
    """How many tiles there are before those of the i-th packed sequence.

    A sequence has the tiles that it needs, or one more. So a program finds its own by
    bisection, without a sum over all sequences before it.
    """
    return row_at(offsets_ptr, i, n_sequences, n_rows) // BLOCK + i


@triton.jit
def packed_tile(offsets_ptr, n_sequences, n_rows, n_heads, BLOCK: tl.constexpr):
    """A program's packed sequence, head and tile, and how many of them there are.

    The tiles of a sequence are those of its first head, then of its second one, and so
    on.
    """
    index = tl.program_id(0).to(tl.int64)
    i, end = index * 0, index * 0 + n_sequences + 2
    while end - i > 1:
        middle = (i + end) // 2
        tile = first_tile(offsets_ptr, middle, n_sequences, n_rows, BLOCK)
        is_behind = tile * n_heads > index
        i, end = tl.where(is_behind, i, middle), tl.where(is_behind, middle, end)
    first = first_tile(offsets_ptr, i, n_sequences, n_rows, BLOCK)
    n_tiles = first_tile(offsets_ptr, i + 1, n_sequences, n_rows, BLOCK) - first
    index -= first * n_heads
    return i, index // n_tiles, index % n_tiles, n_tiles


@triton.jit
def packed_rows(offsets_ptr, i, n_sequences, n_rows):
    """Where the i-th packed sequence begins, and how many rows it has."""
    first = row_at(offsets_ptr, i, n_sequences, n_rows)
    return first, row_at(offsets_ptr, i + 1, n_sequences, n_rows) - first


@triton.jit
def sequence_of_batch(batch, n_heads, sequences):
    """Numbers of queries and keys, and where they are.

    That is in strides of batches, for q and for k; in rows of contiguous tensors, for
    both; in lse and delta, for the first head, and how far it is to the next one.
    """
    n_queries, n_keys = sequences[0], sequences[1]
    query, key = batch * n_queries, batch * n_keys
    return n_queries, n_keys, batch, batch, query, key, query * n_heads, n_queries


@triton.jit
def packed_sequence(i, sequences):
    """Likewise, with a row as a batch."""
    n_queries, n_keys, n_sequences, q_offsets_ptr, k_offsets_ptr = sequences
    query, n_own_queries = packed_rows(q_offsets_ptr, i, n_sequences, n_queries)
    key, n_own_keys = packed_rows(k_offsets_ptr, i, n_sequences, n_keys)
    return n_own_queries, n_own_keys, query, key, query, key, query, n_queries


@triton.jit
def queries_of_sequence(n_heads, sequences, BLOCK_M: tl.constexpr):
    """The program's sequence, head and first query; of packed ones, if it has offsets.

    A packed sequence may have a program too many. That one sees no keys, nor do queries
    of no sequence.
    """
    n_queries, _, n_sequences, offsets_ptr, _ = sequences
    if offsets_ptr is None:
        batch, head, tile_query = queries_of_program(n_heads, n_queries, BLOCK_M)
        own = sequence_of_batch(batch, n_heads, sequences)
    else:
        i, head, tile, n_tiles = packed_tile(
            offsets_ptr, n_sequences, n_queries, n_heads, BLOCK_M
        )
        tile_query = (n_tiles - 1 - tile) * BLOCK_M
        n_own, n_keys, q, k, query, key, row, per_head = packed_sequence(i, sequences)
        sees_keys = (i > 0) & (i <= n_sequences) & (tile_query < n_own)
        n_keys = tl.where(sees_keys, n_keys, 0)
        own = n_own, n_keys, q, k, query, key, row, per_head
    return own, head, tile_query


@triton.jit
def keys_of_sequence(n_heads, n_kv_heads, sequences, BLOCK_N: tl.constexpr):
    """Its sequence, head of k and v, and first key, likewise."""
    _, n_keys, n_sequences, _, offsets_ptr = sequences
    if offsets_ptr is None:
        batch, kv_head, tile_key = owned_keys(n_kv_heads, n_keys, BLOCK_N)
        own = sequence_of_batch(batch, n_heads, sequences)
    else:
        i, kv_head, tile, _ = packed_tile(
            offsets_ptr, n_sequences, n_keys, n_kv_heads, BLOCK_N
        )
        tile_key = tile * BLOCK_N
        n_queries, n_own, q, k, query, key, row, per_head = packed_sequence(
            i, sequences
        )
        are_seen = (i > 0) & (i <= n_sequences) & (tile_key < n_own)
        n_queries = tl.where(are_seen, n_queries, 0)
        own = n_queries, n_own, q, k, query, key, row, per_head
    return own, kv_head, tile_key
