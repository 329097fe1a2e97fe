"""The order of operators: which one takes the least memory, what none can go below, and schedules in that order."""
