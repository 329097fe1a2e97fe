"""Tests of files and folders."""
