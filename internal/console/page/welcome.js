// A browser that followed a link from elsewhere sends no cookie with it. From here it does.
import { get, hasKey } from './api.js';

if (hasKey()) get('/v1/status').then(() => location.replace('/'), () => {});
