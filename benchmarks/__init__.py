"""Measurements, each against something people use today. `make bench` runs them; none of them is a test."""
