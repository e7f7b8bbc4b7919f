"""What is read: bytes, encodings, notebooks and Markdown, to the Python text that is analysed and back."""
