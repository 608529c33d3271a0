"""Headers: what requests and answers say in their fields. Floor: decides."""
