"""From a budget to the best proven schedule of the joint problem."""
