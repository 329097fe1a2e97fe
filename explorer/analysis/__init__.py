"""What a schedule means: why it does what it does, what memory is worth, and where a measured step differs."""
