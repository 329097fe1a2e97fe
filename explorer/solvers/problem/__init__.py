"""What the solvers see of a profile: the joint problem, its pins, bounds on its peaks, its frontier."""
