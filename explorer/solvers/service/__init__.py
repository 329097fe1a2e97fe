"""Solving beside a notebook: a session, its worker process, and what is kept between solves."""
