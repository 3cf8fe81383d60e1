"""`coeval view`: folders of ours as pages, served to this machine alone, while runs go on and after."""
