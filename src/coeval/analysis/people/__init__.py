"""Human labels: which answers are drawn, and what they say of judges and of students' scores."""
