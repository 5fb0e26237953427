/** Hands bytes to the browser to be saved. As bytes of no type: nothing opens in the page instead of being saved. */
export function saveFile(content: BlobPart, name: string): void {
  const address = URL.createObjectURL(new Blob([content], { type: 'application/octet-stream' }));
  const link = document.createElement('a');
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
