"""What starts jobs by itself: a time that comes again (a crontab line or an interval), and files put into a folder."""
