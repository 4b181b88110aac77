"""Rotary position embedding, and its backward, which turns by the negative angle."""
