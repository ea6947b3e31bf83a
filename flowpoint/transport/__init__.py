"""Messages and batches over links: formats, credited channels, control messages."""
