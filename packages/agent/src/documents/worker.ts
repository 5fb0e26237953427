import { parentPort } from 'node:worker_threads';
import { scanFiles } from '../skills/scan.ts';
import { pageEntries, pageText } from './html.ts';
import type { DocumentJob, DocumentResults, FromDocumentWorker, ToDocumentWorker } from './jobs.ts';

/** The thread in which documents are read (D9): whatever a file contains costs this thread alone, which its owner ends past a bound. */
function serve(): void {
  const port = parentPort;
  port?.on('message', ({ id, job }: ToDocumentWorker) => {
    void answer(job).then(
      (result) => port.postMessage({ id, result } satisfies FromDocumentWorker),
      (error: unknown) => port.postMessage({ id, failed: String(error).slice(0, 500) } satisfies FromDocumentWorker),
    );
  });
  port?.postMessage('ready' satisfies FromDocumentWorker);
}

async function answer(job: DocumentJob): Promise<DocumentResults[keyof DocumentResults]> {
  switch (job.kind) {
    case 'page':
      return pageText(job.body, job.charset, job.url, job.maxCharacters);
    case 'entries':
      return pageEntries(job.html, job, job.max);
    case 'convert': {
      // Its libraries take a second to load, which pages need not wait for.
      const { convertDocument } = await import('./convert.ts');
      return await convertDocument(job.name, job.body, job.maxCharacters);
    }
    case 'scan':
      return scanFiles(job.files);
  }
}

serve();
