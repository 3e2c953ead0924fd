"""Speech to text of any length: cut at silences, recognised piece by piece, written as text, JSON or subtitles."""
