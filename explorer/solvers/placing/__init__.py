"""Addresses: rectangles of lifetime × bytes packed into one buffer, as low as the load where the search gets there."""
