"""Integer programs as arrays, and what solves them."""
