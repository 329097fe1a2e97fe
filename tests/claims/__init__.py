"""What solvers claim of random small graphs, held against a judge that tries all schedules."""
