/** One hit of a search, in the one shape that all providers are brought to (WEB-1). */
export interface SearchResult {
  readonly title: string;
  readonly url: string;
  readonly snippet: string;
}

/** One picture (WEB-3). */
export interface ImageResult {
  readonly title: string;
  readonly image_url: string;
  readonly thumbnail_url: string;
  /** The page that shows it; '' when the provider does not say. */
  readonly source_url: string;
}

/** What a page says. */
export interface WebPage {
  readonly title: string;
  readonly markdown: string;
}

export interface Asked {
  readonly signal: AbortSignal | undefined;
}

export interface SearchProvider {
  readonly name: string;
  search(query: string, options: Asked & { readonly maxResults: number }): Promise<readonly SearchResult[]>;
}

export interface FetchProvider {
  readonly name: string;
  /** The operator allows addresses of the own network. Absent = no. */
  readonly allowPrivate?: boolean;
  fetch(url: string, options: Asked): Promise<WebPage>;
}

export interface ImageQuery extends Asked {
  readonly maxResults: number;
  readonly size: string | undefined;
  readonly type: string | undefined;
  readonly layout: string | undefined;
}

export interface ImageProvider {
  readonly name: string;
  search(query: string, options: ImageQuery): Promise<readonly ImageResult[]>;
}
