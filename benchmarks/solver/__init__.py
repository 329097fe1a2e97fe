"""How good the solver's answers are, how soon they come, and how large its programs."""
