import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

export default defineConfig({
  root: import.meta.dirname,
  plugins: [react()],
  build: {
    outDir: '../../dist/web',
    emptyOutDir: true,
    target: 'es2023',
    sourcemap: true,
    // The policy of the server allows files of its own only: nothing may become a data: address.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: {
      treeshake: {
        // These packages do nothing when they are merely loaded; a bundle without this carries a tracing client.
        moduleSideEffects: (id) => !/node_modules\/(?:@langchain\/|langsmith\/)/.test(id),
      },
    },
  },
  server: {
    // For working on the page alone: the API comes from a server that runs beside it.
    proxy: { '/api': 'http://127.0.0.1:2026', '/health': 'http://127.0.0.1:2026' },
  },
});
