"""What results are shown with: HTML and lines of text."""
