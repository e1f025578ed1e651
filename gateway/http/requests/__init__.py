"""What every handler needs: who asks, the parts of the gateway, responses and refusals."""
