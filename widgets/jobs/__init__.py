"""What goes on in the background, a job each."""
