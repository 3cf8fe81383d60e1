"""Requests that wait for batch jobs, and what came of them: on disk, with little of it in memory."""
