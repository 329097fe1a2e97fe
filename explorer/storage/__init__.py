"""Values in files: plain JSON with a checksum, and the folder for what is remembered between processes."""
