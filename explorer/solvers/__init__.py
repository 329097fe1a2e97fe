"""Solvers: from a profile and a budget to a schedule, with what is proven about it."""
