"""Plans: schedules as vectors of decisions, evaluated and annealed by compiled code."""
