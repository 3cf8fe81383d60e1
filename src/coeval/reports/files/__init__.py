"""Reports as files that one keeps or mails."""
