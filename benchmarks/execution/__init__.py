"""Real training steps, beside eager mode and beside what was predicted of them."""
